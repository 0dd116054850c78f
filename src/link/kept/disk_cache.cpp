#include "link/kept/disk_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "link/kept/beside_library.hpp"
#include "link/kept/bounded_folder.hpp"

namespace cutlass_fused::link {
namespace {

constexpr char kMagic[] = "cutlass_fused kernel 1\n";
constexpr size_t kMagicSize = sizeof kMagic - 1;
// More than any kernel, so that a damaged size allocates nothing absurd.
constexpr size_t kMostBytes = size_t{1} << 28;
// Of all files: some thousands of kernels.
constexpr int64_t kMostOfFolder = int64_t{1} << 30;

// FNV-1a of 64 bits, from a start of one's own.
uint64_t hash(std::string_view text, uint64_t start = 0xcbf29ce484222325) {
  for (unsigned char c : text) start = (start ^ c) * 0x100000001b3;
  return start;
}

std::string join(std::string_view key, std::string_view content) {
  std::string text(kMagic);
  for (std::string_view const part : {key, content}) {
    uint64_t const size = part.size();
    text.append(reinterpret_cast<char const*>(&size), sizeof size);
    text.append(part);
  }
  uint64_t const sum = hash(text);
  return text.append(reinterpret_cast<char const*>(&sum), sizeof sum);
}

uint64_t read_number(std::string_view text) {
  uint64_t number;
  std::memcpy(&number, text.data(), sizeof number);
  return number;
}

// The part that begins a text, which loses it; nothing: there is not so much of it.
std::optional<std::string_view> take_part(std::string_view& text) {
  constexpr size_t kSize = sizeof(uint64_t);
  if (text.size() < kSize) return {};
  uint64_t const size = read_number(text);
  text.remove_prefix(kSize);
  if (size > text.size()) return {};
  std::string_view const part = text.substr(0, size);
  text.remove_prefix(size);
  return part;
}

// The content of a file of this key.
std::optional<std::string> split(std::string_view text, std::string_view key) {
  if (text.size() < kMagicSize + sizeof(uint64_t) || text.substr(0, kMagicSize) != kMagic) {
    return {};
  }
  std::string_view const summed = text.substr(0, text.size() - sizeof(uint64_t));
  if (read_number(text.substr(summed.size())) != hash(summed)) return {};
  std::string_view rest = summed.substr(kMagicSize);
  auto const found = take_part(rest);
  if (!found || *found != key) return {};
  auto const content = take_part(rest);
  if (!content || !rest.empty()) return {};
  return std::string(*content);
}

class File {
 public:
  File(std::string const& path, int flags) : file_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  File(File const&) = delete;
  ~File() {
    if (file_ >= 0) close(file_);
  }

  bool is_open() const { return file_ >= 0; }

  // Whether nobody else could have written it, or names in it, than the user, root and `owner`.
  bool is_private(mode_t type, uid_t owner) const {
    struct stat found;
    if (fstat(file_, &found) != 0 || (found.st_mode & S_IFMT) != type) return false;
    bool const is_theirs = found.st_uid == geteuid() || found.st_uid == 0 || found.st_uid == owner;
    return is_theirs && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  }

  std::optional<std::string> read_all() const {
    struct stat found;
    if (fstat(file_, &found) != 0 || found.st_size > static_cast<off_t>(kMostBytes)) return {};
    std::string text(static_cast<size_t>(found.st_size), '\0');
    size_t done = 0;
    while (done < text.size()) {
      ssize_t const count = ::read(file_, text.data() + done, text.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return {};
      done += static_cast<size_t>(count);
    }
    return text;
  }

  bool write_all(std::string_view text) const {
    while (!text.empty()) {
      ssize_t const count = ::write(file_, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      text.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

 private:
  int file_;
};

std::string describe_error(std::string const& what, std::string const& path) {
  return what + " " + path + ": " + std::strerror(errno);
}

// Every folder of a path, each the user's alone.
bool make_folders(std::string const& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    std::string const part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return false;
    if (end == std::string::npos) return true;
  }
}

// "" or what is wrong.
std::string find_fault(std::string const& path, uid_t owner) {
  File const folder(path, O_RDONLY | O_DIRECTORY);
  if (!folder.is_open()) return describe_error("cannot read", path);
  return folder.is_private(S_IFDIR, owner) ? "" : "others may write to " + path;
}

uid_t find_owner(std::string const& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0 ? found.st_uid : 0;
}

std::string read_variable(char const* name) {
  char const* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::optional<DiskCache> DiskCache::find() {
  if (std::string const folder = read_variable("CUTLASS_FUSED_CACHE_DIR"); !folder.empty()) {
    return DiskCache(folder + "/kernels");
  }
  std::string const caches = read_variable("XDG_CACHE_HOME");
  if (!caches.empty() && caches[0] == '/') return DiskCache(caches + "/cutlass_fused/kernels");
  std::string const home = read_variable("HOME");
  if (home.empty()) return {};
  return DiskCache(home + "/.cache/cutlass_fused/kernels");
}

DiskCache DiskCache::find_linked() {
  DiskCache linked(find_beside_library("linked") + "/kernels");
  linked.owner_ = find_owner(find_library());
  return linked;
}

std::string DiskCache::find_refusal() const { return find_fault(folder_, owner_); }

std::string DiskCache::path_of(std::string_view key) const {
  char name[40];
  std::snprintf(name, sizeof name, "/%016llx%016llx", static_cast<unsigned long long>(hash(key)),
                static_cast<unsigned long long>(hash(key, 0x84222325cbf29ce4)));
  return folder_ + name;
}

std::optional<std::string> DiskCache::read(std::string_view key) const {
  if (!find_refusal().empty()) return {};
  File const file(path_of(key), O_RDONLY | O_NOFOLLOW);
  if (!file.is_open() || !file.is_private(S_IFREG, owner_)) return {};
  auto const text = file.read_all();
  return text ? split(*text, key) : std::nullopt;
}

std::string DiskCache::write(std::string_view key, std::string_view content) const {
  if (!make_folders(folder_)) return describe_error("cannot make", folder_);
  if (std::string const refusal = find_refusal(); !refusal.empty()) return refusal;
  std::string const path = path_of(key);
  static std::atomic<unsigned> count{0};
  // Of this process and this call alone, and beside the file, so that it is in the same file
  // system.
  std::string const new_path =
      path + "." + std::to_string(getpid()) + "." + std::to_string(count++) + ".new";
  {
    File const file(new_path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (!file.is_open()) return describe_error("cannot write", new_path);
    if (!file.write_all(join(key, content))) {
      std::string const error = describe_error("cannot write", new_path);
      unlink(new_path.c_str());
      return error;
    }
  }
  if (std::rename(new_path.c_str(), path.c_str()) == 0) {
    bound_folder(folder_, kMostOfFolder, std::string_view(path).substr(folder_.size() + 1));
    return "";
  }
  std::string const error = describe_error("cannot rename", new_path);
  unlink(new_path.c_str());
  return error;
}

}  // namespace cutlass_fused::link
