// What is made once for each key, however many threads ask for it at the same time: the first makes
// it, the others wait. It stays for the process, also if it is a failure.
#pragma once

#include <unistd.h>

#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace cutlass_fused::link {

template <class Made>
class Once {
 public:
  // make() -> Made. If it throws, nothing stays, and who waited makes it himself.
  template <class Make>
  Made get(std::string const& key, Make const& make) {
    // Most calls find it, and need no promise.
    if (auto const found = peek(key)) return *found;
    for (;;) {
      std::promise<Made> promise;
      std::shared_future<Made> found;
      {
        std::lock_guard<std::mutex> const lock(mutex_);
        Entry& entry = made_[key];
        if (entry.is_usable()) {
          found = entry.made;
        } else {
          entry = {promise.get_future().share(), getpid()};
        }
      }
      if (!found.valid()) return make_new(key, promise, make);
      try {
        return found.get();
      } catch (std::future_error const&) {
        continue;  // its maker has failed
      }
    }
  }

  // What has been made. Nothing: none is, or some thread makes it.
  std::optional<Made> peek(std::string const& key) {
    std::shared_future<Made> found;
    {
      std::lock_guard<std::mutex> const lock(mutex_);
      auto const place = made_.find(key);
      if (place == made_.end() || !place->second.is_ready()) return {};
      found = place->second.made;
    }
    try {
      return found.get();
    } catch (std::future_error const&) {
      return {};
    }
  }

  // Whether it has been made, or some thread makes it.
  bool has(std::string const& key) {
    std::lock_guard<std::mutex> const lock(mutex_);
    auto const place = made_.find(key);
    return place != made_.end() && place->second.is_usable();
  }

 private:
  struct Entry {
    std::shared_future<Made> made;
    pid_t maker = 0;

    bool is_ready() const {
      return made.valid() && made.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }
    // What a thread was making when the process forked is made by none in the child.
    bool is_usable() const { return made.valid() && (maker == getpid() || is_ready()); }
  };

  template <class Make>
  Made make_new(std::string const& key, std::promise<Made>& promise, Make const& make) {
    try {
      Made made = make();
      promise.set_value(made);
      return made;
    } catch (...) {
      std::lock_guard<std::mutex> const lock(mutex_);
      made_.erase(key);
      throw;  // and the promise breaks
    }
  }

  std::mutex mutex_;
  std::unordered_map<std::string, Entry> made_;
};

// One that is never destroyed: a thread may link until the process has ended.
template <class Made>
Once<Made>& keep_once() {
  return *new Once<Made>;
}

}  // namespace cutlass_fused::link
