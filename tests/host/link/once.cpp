// Many threads ask for a few keys: prints how often each was made, and "equal" if all got the same;
// then how often one was made whose first maker fails.
#include <atomic>
#include <chrono>
#include <iostream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "link/once.hpp"

int main() {
  cutlass_fused::link::Once<int> once;
  std::atomic<int> made[3] = {};
  std::atomic<int> faults{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 24; ++i) {
    threads.emplace_back([&, i] {
      int const key = i % 3;
      int const found = once.get("key " + std::to_string(key), [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ++made[key];
        return 100 + key;
      });
      if (found != 100 + key) ++faults;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto const& count : made) std::cout << count << ' ';
  std::cout << (faults == 0 ? "equal" : "differ") << '\n';

  std::atomic<int> tries{0}, failures{0};
  threads.clear();
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      try {
        int const found = once.get("fails first", [&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          if (tries++ == 0) throw std::runtime_error("no");
          return 5;
        });
        if (found != 5) ++faults;
      } catch (std::runtime_error const&) {
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::cout << tries << ' ' << failures << ' ' << (faults == 0 ? "equal" : "differ") << '\n';
}
