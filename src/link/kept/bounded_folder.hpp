// A folder of files that is kept below a size.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cutlass_fused::link {

// Where the files whose names are 32 hexadecimal digits, and perhaps a point and more, hold more
// than `most` bytes, removes the oldest ones, until they hold three quarters of it. `kept`: the
// name of one that stays. Others may remove the same files at the same time, and whoever has one
// open reads it to its end.
inline void bound_folder(std::string const& path, int64_t most, std::string_view kept) {
  struct Entry {
    struct timespec written;
    int64_t bytes;
    std::string path;
  };
  constexpr size_t kDigits = 32;
  std::vector<Entry> files;
  int64_t total = 0;
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) return;
  while (dirent const* const entry = readdir(folder)) {
    std::string_view const name = entry->d_name;
    bool const is_ours = name.size() >= kDigits && name != kept &&
                         name.find_first_not_of("0123456789abcdef") >= kDigits &&
                         (name.size() == kDigits || name[kDigits] == '.');
    struct stat found;
    std::string file = path + "/" + entry->d_name;
    if (!is_ours || stat(file.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
    total += found.st_size;
    files.push_back({found.st_mtim, found.st_size, std::move(file)});
  }
  closedir(folder);
  if (total <= most) return;
  std::sort(files.begin(), files.end(), [](Entry const& a, Entry const& b) {
    if (a.written.tv_sec != b.written.tv_sec) return a.written.tv_sec < b.written.tv_sec;
    return a.written.tv_nsec < b.written.tv_nsec;
  });
  for (Entry const& file : files) {
    if (total <= most / 4 * 3) return;
    unlink(file.path.c_str());
    total -= file.bytes;
  }
}

}  // namespace cutlass_fused::link
