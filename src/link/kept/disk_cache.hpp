// What was compiled, kept on disk between processes: in CUTLASS_FUSED_CACHE_DIR, else in
// cutlass_fused of XDG_CACHE_HOME, else in that of ~/.cache; there in the folder kernels.
//
// A file holds all of its key, and a sum of its bytes: what is damaged, or another key's, counts as
// missing. Files and the folder are the user's alone (0600, 0700), and what others could have
// written is not read, since a kernel from there would run. A file is complete when it gets its
// name; of two processes that write one at the same time, either's stays, and they are the same.
// What root wrote is read too, and what others may read: a kernel that was linked ahead of time.
// Where the files hold more than 1 GiB, the oldest ones are removed.
//
// The same in the folder linked/kernels beside the library is what came with it. It is only read.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace cutlass_fused::link {

class DiskCache {
 public:
  explicit DiskCache(std::string folder) : folder_(std::move(folder)) {}

  // By the environment; nothing where there is no home either.
  static std::optional<DiskCache> find();

  // Beside the library, where its owner may write as well.
  static DiskCache find_linked();

  // Nothing: not there, or not to be used.
  std::optional<std::string> read(std::string_view key) const;

  // Why it could not be written; empty if it was. A cache that cannot be written costs time alone.
  std::string write(std::string_view key, std::string_view content) const;

  // Where the content of a key lies.
  std::string path_of(std::string_view key) const;

  std::string const& folder() const { return folder_; }
  // Why nothing is read from there; empty: it is.
  std::string find_refusal() const;

 private:
  std::string folder_;
  uid_t owner_ = 0;  // whose files are read, beside those of the user and of root
};

}  // namespace cutlass_fused::link
