#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sluice::store {

/// What is wrong with the files of the bare repository of lineage, one by one, as Git would stumble over them; empty if nothing
/// is. A file that goes away meanwhile is none of it, since `git gc` may run. libgit2 reads less strictly and fewer of them.
/// Whether they say what the database says is another question (Lineage::check).
std::vector<std::string> damaged_files(const std::filesystem::path& repository);

/// The same of its objects alone: each loose one and each pack, whether anything refers to it or not.
std::vector<std::string> damaged_objects(const std::filesystem::path& repository);

}  // namespace sluice::store
