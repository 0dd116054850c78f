// background WAY: what is linked on another thread, where the process does this meanwhile.
//   waits   prints "once" if two starts of a key ran it once, and if a wait ended behind it
//   ends    returns from main while a job runs, which prints "done"; another never begins
//   forks   forks while a job runs: the child starts the same key anew, and waits; also a value
//           that a thread of the parent was making is made anew there
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "link/background.cpp"
#include "link/nvrtc.cpp"
#include "link/once.hpp"

using namespace cutlass_fused::link;

static void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

static void print(char const* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

static void wait_twice() {
  std::atomic<int> count{0};
  auto const job = [&] { sleep_ms(30), ++count; };
  start_in_background("a", job);
  start_in_background("a", job);
  start_in_background("b", [] { throw 1; });
  wait_for_background("a");
  wait_for_background("b");
  wait_for_background("never started");
  bool const is_known = is_in_background("a") && !is_in_background("c");
  print(count == 1 && is_known ? "once" : "not once");
}

static void fork_meanwhile() {
  static auto& once = keep_once<int>();
  std::atomic<bool> has_begun{false};
  start_in_background("a", [&] {
    once.get("made", [&] { return has_begun = true, sleep_ms(200), 1; });
    sleep_ms(100);
  });
  while (!has_begun) sleep_ms(1);
  pid_t const child = fork();
  if (child == 0) {
    bool const is_anew = !is_in_background("a") && !once.peek("made") && !once.has("made");
    int made = 0;
    start_in_background("a", [&] { made = once.get("made", [] { return 2; }); });
    wait_for_background("a");
    std::exit(is_anew && made == 2 && once.peek("made") == 2 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  wait_for_background("a");
  print(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "child anew" : "child failed");
  print(once.peek("made") == 1 ? "parent kept" : "parent lost");
}

int main(int, char** arguments) {
  if (std::strcmp(arguments[1], "waits") == 0) wait_twice();
  if (std::strcmp(arguments[1], "forks") == 0) fork_meanwhile();
  if (std::strcmp(arguments[1], "ends") == 0) {
    static std::atomic<bool> has_begun{false};
    start_in_background("a", [] { has_begun = true, sleep_ms(200), print("done"); });
    start_in_background("b", [] { print("begun in vain"); });
    while (!has_begun) sleep_ms(1);
  }
}
