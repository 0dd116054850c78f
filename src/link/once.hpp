// What is made once for each key, however many threads ask for it at the same time: the first makes
// it, the others wait. It stays for the process, also if it is a failure.
#pragma once

#include <future>
#include <map>
#include <mutex>
#include <string>

namespace cutlass_fused::link {

template <class Made>
class Once {
 public:
  // make() -> Made. If it throws, nothing stays, and who waited makes it himself.
  template <class Make>
  Made get(std::string const& key, Make const& make) {
    for (;;) {
      std::promise<Made> promise;
      std::shared_future<Made> found;
      {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto const [place, is_new] = made_.try_emplace(key);
        if (is_new) place->second = promise.get_future().share();
        found = is_new ? std::shared_future<Made>{} : place->second;
      }
      if (!found.valid()) return make_new(key, promise, make);
      try {
        return found.get();
      } catch (std::future_error const&) {
        continue;  // its maker has failed
      }
    }
  }

 private:
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
  std::map<std::string, std::shared_future<Made>> made_;
};

}  // namespace cutlass_fused::link
