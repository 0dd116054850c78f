// disk_cache FOLDER: reads requests, a line each, and answers each with a line.
//   write KEY CONTENT   why it failed, or "ok"
//   read KEY            "= CONTENT", or "none"
//   path KEY            the file
//   linked KEY          "= CONTENT", or "none", beside this program
//   refusal             why nothing is read, or "ok"
//   many KEY COUNT      writes and reads KEY from that many threads: "ok", or what was read
#include <atomic>
#include <iostream>
#include <sstream>
#include <thread>
#include <vector>

#include "link/kept/disk_cache.cpp"

using cutlass_fused::link::DiskCache;

static std::string run_many(DiskCache const& cache, std::string const& key, int count) {
  std::string const content(100000, 'x');
  std::atomic<int> faults{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) {
        auto const found = cache.read(key);
        if (found && *found != content) ++faults;
        if (!cache.write(key, content).empty()) ++faults;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return faults == 0 && cache.read(key) == content ? "ok" : "faults";
}

int main(int, char** arguments) {
  auto const found = arguments[1] != nullptr ? DiskCache(arguments[1]) : DiskCache::find();
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string request, key, content;
    words >> request >> key >> content;
    if (request == "linked") {
      auto const read = DiskCache::find_linked().read(key);
      std::cout << (read ? "= " + *read : "none");
    } else if (!found) {
      std::cout << "no folder";
    } else if (request == "refusal") {
      std::string const refusal = found->find_refusal();
      std::cout << (refusal.empty() ? "ok" : refusal);
    } else if (request == "write") {
      std::string const error = found->write(key, content);
      std::cout << (error.empty() ? "ok" : error);
    } else if (request == "read") {
      auto const read = found->read(key);
      std::cout << (read ? "= " + *read : "none");
    } else if (request == "path") {
      std::cout << found->path_of(key);
    } else {
      std::cout << run_many(*found, key, std::stoi(content));
    }
    std::cout << '\n';
  }
}
