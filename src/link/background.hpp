// What is linked while calls go on: one after the other, on one thread of this process.
//
// A process that ends waits for what that thread is doing, a second or so, since NVRTC and the
// driver take themselves apart then; what has not begun is left. A forked process has no such
// thread: it starts its own when something is to be linked there.
#pragma once

#include <functional>
#include <string>

namespace cutlass_fused::link {

// Each key once in a process; a second call for it does nothing. Any thread may call.
void start_in_background(std::string const& key, std::function<void()> job);

// Whether it was started, in this process.
bool is_in_background(std::string const& key);

// Until it is done; not at all where it was not started.
void wait_for_background(std::string const& key);

}  // namespace cutlass_fused::link
