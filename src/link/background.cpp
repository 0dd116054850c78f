#include "link/background.hpp"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "link/nvrtc.hpp"

namespace cutlass_fused::link {
namespace {

class Worker {
 public:
  void start(std::string const& key, std::function<void()> job) {
    std::lock_guard<std::mutex> const lock(mutex_);
    if (is_ended_ || done_.count(key) != 0) return;
    auto task = std::make_shared<std::packaged_task<void()>>(std::move(job));
    done_[key] = task->get_future().share();
    waiting_.push_back(std::move(task));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    has_work_.notify_one();
  }

  bool has(std::string const& key) {
    std::lock_guard<std::mutex> const lock(mutex_);
    return done_.count(key) != 0;
  }

  void wait(std::string const& key) {
    std::shared_future<void> done;
    {
      std::lock_guard<std::mutex> const lock(mutex_);
      auto const found = done_.find(key);
      if (found == done_.end()) return;
      done = found->second;
    }
    done.wait();  // what it threw is no concern of who waits
  }

  void end() {
    {
      std::lock_guard<std::mutex> const lock(mutex_);
      is_ended_ = true;
      waiting_.clear();
    }
    has_work_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  bool is_of_this_process() const { return process_ == getpid(); }

 private:
  void run() {
    for (;;) {
      std::shared_ptr<std::packaged_task<void()>> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        has_work_.wait(lock, [this] { return is_ended_ || !waiting_.empty(); });
        if (is_ended_) return;
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      (*task)();
    }
  }

  pid_t const process_ = getpid();
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<std::shared_ptr<std::packaged_task<void()>>> waiting_;
  std::map<std::string, std::shared_future<void>> done_;
  bool is_ended_ = false;
  std::thread thread_;
};

// Neither is ever destroyed. That of a process before a fork is left as it is: its thread is not
// here, and may have held its lock.
std::atomic<Worker*> worker{nullptr};

void end_worker() {
  Worker* const found = worker.load();
  if (found != nullptr && found->is_of_this_process()) found->end();
}

Worker& find_worker() {
  // What NVRTC does at the end of a process comes behind end_worker, as it was opened before.
  [[maybe_unused]] static bool const is_prepared = [] {
    find_nvrtc();
    return std::atexit(end_worker) == 0;
  }();
  for (Worker* found = worker.load();;) {
    if (found != nullptr && found->is_of_this_process()) return *found;
    auto made = std::make_unique<Worker>();
    if (worker.compare_exchange_strong(found, made.get())) return *made.release();
  }
}

}  // namespace

void start_in_background(std::string const& key, std::function<void()> job) {
  find_worker().start(key, std::move(job));
}

bool is_in_background(std::string const& key) {
  Worker* const found = worker.load();
  return found != nullptr && found->is_of_this_process() && found->has(key);
}

void wait_for_background(std::string const& key) {
  Worker* const found = worker.load();
  if (found != nullptr && found->is_of_this_process()) found->wait(key);
}

}  // namespace cutlass_fused::link
