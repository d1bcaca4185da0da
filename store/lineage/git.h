#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

struct git_repository;
struct git_odb;

namespace sluice::store {

/// Before anything of libgit2 is used. May be called any number of times, by several threads.
void start_libgit2();

struct FreeRepository {
  void operator()(git_repository* repository) const;
};
struct FreeObjects {
  void operator()(git_odb* objects) const;
};

struct TreeEntry {
  std::string name;
  std::string hash;
  bool is_folder = false;
};

struct CommitDraft {
  std::string tree;
  std::vector<std::string> parents;
  std::string author;
  std::string email;
  int64_t seconds = 0;  // since 1970 in UTC, of author and committer
  std::string message;
};

/// A bare Git repository. Hashes are 40 hexadecimal digits. Throws StoreError: kCorrupted for what cannot be understood, kFull
/// and kUnwritable for what the disk refuses.
class GitRepository {
 public:
  static GitRepository open(const std::string& path);
  static GitRepository create(const std::string& path);
  /// Objects alone, without refs, to learn what hash something would have.
  static GitRepository in_memory();

  std::string write_blob(const std::string& bytes);
  std::string write_tree(const std::vector<TreeEntry>& entries);
  std::string write_commit(const CommitDraft& draft);
  void set_ref(const std::string& name, const std::string& hash);

  std::optional<std::string> ref(const std::string& name) const;
  std::vector<std::string> refs() const;
  std::string tree_of_commit(const std::string& commit) const;
  std::vector<TreeEntry> entries_of_tree(const std::string& tree_hash) const;
  /// Reads the object, and that its content has its hash.
  void verify_object(const std::string& hash) const;

 private:
  GitRepository(git_repository* repository, git_odb* objects);

  std::unique_ptr<git_odb, FreeObjects> objects_;
  std::unique_ptr<git_repository, FreeRepository> repository_;
};

}  // namespace sluice::store
