#include "store/lineage/git.h"

#include <fmt/format.h>
#include <git2.h>
#include <git2/sys/mempack.h>
#include <git2/sys/repository.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "store/error.h"
#include "store/folder/system_error.h"

namespace sluice::store {

namespace {

template <auto Free>
struct Release {
  template <class Handle>
  void operator()(Handle* handle) const {
    Free(handle);
  }
};
template <class Handle, auto Free>
using Owned = std::unique_ptr<Handle, Release<Free>>;

using Reference = Owned<git_reference, git_reference_free>;
using Commit = Owned<git_commit, git_commit_free>;
using Tree = Owned<git_tree, git_tree_free>;
using TreeBuilder = Owned<git_treebuilder, git_treebuilder_free>;
using Signature = Owned<git_signature, git_signature_free>;
using Object = Owned<git_odb_object, git_odb_object_free>;
using RefIterator = Owned<git_reference_iterator, git_reference_iterator_free>;

ErrorKind kind_of(int code, int system_error) {
  if (code == GIT_EOWNER || code == GIT_ELOCKED) return ErrorKind::kUnwritable;
  return system_error == 0 ? ErrorKind::kCorrupted : kind_of_system_error(system_error);
}

/// Throws what an error code of libgit2 means, right after the call that gave it. `doing` completes "cannot ...".
[[noreturn]] void fail(const std::string& doing, int code) {
  const git_error* error = git_error_last();
  const bool by_system = error != nullptr && (error->klass == GIT_ERROR_OS || error->klass == GIT_ERROR_FILESYSTEM);
  const bool by_memory = error != nullptr && error->klass == GIT_ERROR_NOMEMORY;
  const int system_error = by_memory ? ENOMEM : by_system ? errno : 0;
  throw StoreError(kind_of(code, system_error),
                   fmt::format("cannot {} in the Git repository: {}", doing, error != nullptr ? error->message : "no reason"),
                   hint_of_system_error(system_error));
}

/// Runs a function of libgit2; throws if it gives an error.
template <class Function, class... Arguments>
void call(const std::string& doing, Function function, Arguments... arguments) {
  errno = 0;
  const int code = function(arguments...);
  if (code < 0) fail(doing, code);
}

git_oid oid_of(const std::string& hash) {
  git_oid oid;
  call("read the hash " + hash, git_oid_fromstr, &oid, hash.c_str());
  return oid;
}

std::string hash_of(const git_oid* oid) {
  std::string hash(GIT_OID_HEXSZ, '\0');
  git_oid_fmt(hash.data(), oid);
  return hash;
}

Commit commit_of(git_repository* repository, const std::string& hash) {
  const git_oid oid = oid_of(hash);
  git_commit* commit = nullptr;
  call("find the commit " + hash, git_commit_lookup, &commit, repository, &oid);
  return Commit(commit);
}

Tree tree_of(git_repository* repository, const std::string& hash) {
  const git_oid oid = oid_of(hash);
  git_tree* tree = nullptr;
  call("find the tree " + hash, git_tree_lookup, &tree, repository, &oid);
  return Tree(tree);
}

}  // namespace

void start_libgit2() {
  static std::once_flag once;  // the settings are the process's
  std::call_once(once, [] {
    git_libgit2_init();
    // Nobody's settings count here, and a home that cannot be read does no harm.
    for (const int level : {GIT_CONFIG_LEVEL_SYSTEM, GIT_CONFIG_LEVEL_XDG, GIT_CONFIG_LEVEL_GLOBAL}) {
      git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, level, "");
    }
  });
}

void FreeRepository::operator()(git_repository* repository) const { git_repository_free(repository); }
void FreeObjects::operator()(git_odb* objects) const { git_odb_free(objects); }

GitRepository::GitRepository(git_repository* repository, git_odb* objects) : objects_(objects), repository_(repository) {}

GitRepository GitRepository::open(const std::string& path) {
  start_libgit2();
  git_repository* repository = nullptr;
  call("open " + path, git_repository_open_bare, &repository, path.c_str());
  git_odb* objects = nullptr;
  GitRepository opened(repository, nullptr);
  call("open the objects of " + path, git_repository_odb, &objects, repository);
  opened.objects_.reset(objects);
  return opened;
}

GitRepository GitRepository::create(const std::string& path) {
  start_libgit2();
  git_repository* repository = nullptr;
  call("make " + path, git_repository_init, &repository, path.c_str(), 1U);
  git_repository_free(repository);
  return open(path);
}

GitRepository GitRepository::in_memory() {
  start_libgit2();
  git_odb* objects = nullptr;
  call("make objects", git_odb_new, &objects);
  GitRepository made(nullptr, objects);
  git_odb_backend* memory = nullptr;
  call("make objects", git_mempack_new, &memory);
  call("make objects", git_odb_add_backend, objects, memory, 1);
  git_repository* repository = nullptr;
  call("make a repository", git_repository_wrap_odb, &repository, objects);
  made.repository_.reset(repository);
  return made;
}

std::string GitRepository::write_blob(const std::string& bytes) {
  git_oid oid;
  call("write a file", git_blob_create_from_buffer, &oid, repository_.get(), static_cast<const void*>(bytes.data()),
       bytes.size());
  return hash_of(&oid);
}

std::string GitRepository::write_tree(const std::vector<TreeEntry>& entries) {
  git_treebuilder* made = nullptr;
  call("make a tree", git_treebuilder_new, &made, repository_.get(), nullptr);
  const TreeBuilder builder(made);
  for (const TreeEntry& entry : entries) {
    const git_oid oid = oid_of(entry.hash);
    call("add " + entry.name, git_treebuilder_insert, nullptr, builder.get(), entry.name.c_str(), &oid,
         entry.is_folder ? GIT_FILEMODE_TREE : GIT_FILEMODE_BLOB);
  }
  git_oid oid;
  call("write a tree", git_treebuilder_write, &oid, builder.get());
  return hash_of(&oid);
}

std::string GitRepository::write_commit(const CommitDraft& draft) {
  git_signature* made = nullptr;
  call("sign a commit", git_signature_new, &made, draft.author.c_str(), draft.email.c_str(), draft.seconds, 0);
  const Signature signature(made);
  std::vector<Commit> parents;
  std::vector<const git_commit*> handles;
  for (const std::string& parent : draft.parents) {
    parents.push_back(commit_of(repository_.get(), parent));
    handles.push_back(parents.back().get());
  }
  const Tree tree = tree_of(repository_.get(), draft.tree);
  git_oid oid;
  call("write a commit", git_commit_create, &oid, repository_.get(), nullptr, signature.get(), signature.get(), nullptr,
       draft.message.c_str(), tree.get(), handles.size(), handles.data());
  return hash_of(&oid);
}

void GitRepository::set_ref(const std::string& name, const std::string& hash) {
  const git_oid oid = oid_of(hash);
  git_reference* made = nullptr;
  call("write " + name, git_reference_create, &made, repository_.get(), name.c_str(), &oid, 1, nullptr);
  git_reference_free(made);
}

std::optional<std::string> GitRepository::ref(const std::string& name) const {
  git_reference* found = nullptr;
  errno = 0;
  const int code = git_reference_lookup(&found, repository_.get(), name.c_str());
  if (code == GIT_ENOTFOUND) return std::nullopt;
  if (code < 0) fail("read " + name, code);
  const Reference reference(found);
  const git_oid* target = git_reference_target(found);
  if (target == nullptr) return std::nullopt;
  return hash_of(target);
}

std::vector<std::string> GitRepository::refs() const {
  git_reference_iterator* made = nullptr;
  call("list refs", git_reference_iterator_new, &made, repository_.get());
  const RefIterator iterator(made);
  std::vector<std::string> names;
  const char* name = nullptr;
  int code = 0;
  errno = 0;
  while ((code = git_reference_next_name(&name, made)) == 0) names.emplace_back(name);
  if (code != GIT_ITEROVER) fail("list refs", code);
  return names;
}

std::string GitRepository::tree_of_commit(const std::string& commit) const {
  return hash_of(git_commit_tree_id(commit_of(repository_.get(), commit).get()));
}

std::vector<TreeEntry> GitRepository::entries_of_tree(const std::string& tree_hash) const {
  const Tree tree = tree_of(repository_.get(), tree_hash);
  std::vector<TreeEntry> entries;
  for (size_t i = 0; i < git_tree_entrycount(tree.get()); ++i) {
    const git_tree_entry* entry = git_tree_entry_byindex(tree.get(), i);
    entries.push_back(
        {git_tree_entry_name(entry), hash_of(git_tree_entry_id(entry)), git_tree_entry_type(entry) == GIT_OBJECT_TREE});
  }
  return entries;
}

void GitRepository::verify_object(const std::string& hash) const {
  const git_oid oid = oid_of(hash);
  git_odb_object* read = nullptr;
  call("read " + hash, git_odb_read, &read, objects_.get(), &oid);
  git_odb_object_free(read);
}

}  // namespace sluice::store
