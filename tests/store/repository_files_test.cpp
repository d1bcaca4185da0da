// Git itself says which damage counts: whatever it stumbles over must be found, and be gone once the folder was opened.

#include "store/lineage/repository_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "store/folder/data_folder.h"
#include "store/lineage/sha1.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

namespace fs = std::filesystem;

constexpr Time kLong = 3600LL * 1000000;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  if (fs::exists(path)) fs::permissions(path, fs::perms::owner_all);
  std::ofstream(path, std::ios::binary) << text;
}

/// A folder with an agent and three judged flows; `packed`: as `git gc` leaves the repository.
struct Filled {
  explicit Filled(bool packed = false) {
    {
      DataFolder data(folder.path());
      Store store = data.open_store();
      store.create_agent("ada", Role::kAgent, 100);
      for (int i = 0; i < 3; ++i) {
        store.submit("ada", draft(fmt::format("flow {}", i)));
        store.complete(store.claim("w", kLong).value(), passed());
      }
      data.sync_lineage();
    }
    if (packed) git("gc --quiet");
  }

  std::string git(const std::string& command) const {
    return output_of("git --git-dir=" + (folder.file("lineage.git")) + " " + command);
  }
  fs::path repository() const { return folder.file("lineage.git"); }

  Folder folder;
};

/// Whether any of what people do with a repository ends badly, or says that something is wrong.
bool git_stumbles(const fs::path& repository, const Folder& scratch) {
  fs::remove_all(scratch.file("copy"));
  const std::string line = fmt::format(
      "export GIT_DIR={}; said=$( (git fsck --full && git for-each-ref && git log --all --oneline && git clone --quiet --mirror "
      "\"$GIT_DIR\" {}) 2>&1); echo \" $? $said\"",
      repository.string(), scratch.file("copy"));
  const std::string said = output_of(line);
  for (const char* word : {"error", "fatal", "warning", "broken", "bad ", "corrupt", "missing"}) {
    if (said.find(word) != std::string::npos) return true;
  }
  return !said.starts_with(" 0");
}

/// Damages a copy of `filled` and looks at what is found, and that opening the folder mends it. Returns whether Git stumbled.
bool expect_seen(const Filled& filled, const std::string& what, const std::function<void(const fs::path& repository)>& damage,
                 bool certainly = false) {
  const Folder scratch;
  const std::string folder = scratch.file("data");
  fs::copy(filled.folder.path(), folder, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const fs::path repository = folder + "/lineage.git";
  damage(repository);
  const bool stumbles = git_stumbles(repository, scratch);
  const auto problems = fsck(folder).problems;
  EXPECT_FALSE((stumbles || certainly) && problems.empty()) << what << " is not seen";
  {
    const DataFolder opened(folder);
    EXPECT_EQ(opened.notices().empty(), problems.empty()) << what;
  }
  EXPECT_FALSE(git_stumbles(repository, scratch)) << what << " is not mended";
  EXPECT_TRUE(fsck(folder).clean()) << what;
  return stumbles;
}

TEST(RepositoryFiles, AreAllWholeHoweverGitKeepsThem) {
  const Folder scratch;
  for (const bool packed : {false, true}) {
    const Filled filled(packed);
    EXPECT_FALSE(git_stumbles(filled.repository(), scratch));
    EXPECT_EQ(damaged_files(filled.repository()), std::vector<std::string>()) << packed;
    filled.git("symbolic-ref HEAD refs/heads/agents/ada");
    filled.git("repack -adq --write-bitmap-index");
    filled.git("commit-graph write --reachable");
    filled.git("pack-refs --all");
    EXPECT_EQ(damaged_files(filled.repository()), std::vector<std::string>()) << packed;
    EXPECT_TRUE(fsck(filled.folder.path()).clean());
  }
}

TEST(RepositoryFiles, EveryDamageThatGitStumblesOverIsSeenAndMended) {
  const std::vector<std::pair<std::string, std::function<std::string(std::string)>>> damages = {
      {"nothing", [](const std::string&) { return std::string(); }},
      {"zeros", [](const std::string& text) { return std::string(text.size(), '\0'); }},
      {"garbage", [](const std::string&) { return std::string("garbage\n"); }},
      {"half of it", [](const std::string& text) { return text.substr(0, text.size() / 2); }},
      {"more than it", [](const std::string& text) { return text + "more\n"; }},
      {"another byte", [](std::string text) {
         text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 0x55);
         return text;
       }}};
  for (const bool packed : {false, true}) {
    const Filled filled(packed);
    int stumbled = 0, objects = 0;
    for (const auto& entry : fs::recursive_directory_iterator(filled.repository())) {
      if (!entry.is_regular_file() || entry.path().string().find("/hooks/") != std::string::npos) continue;
      const std::string file = entry.path().lexically_relative(filled.repository()).string();
      const bool is_loose = file.size() == std::string("objects/").size() + 41;
      if (is_loose && objects++ % 4 != 0) continue;  // they are much alike
      for (const auto& [kind, change] : damages) {
        stumbled += expect_seen(filled, file + ": " + kind, [&](const fs::path& repository) {
          write(repository / file, change(text_of(repository / file)));
        });
      }
      stumbled += expect_seen(filled, file + ": gone", [&](const fs::path& repository) { fs::remove(repository / file); });
    }
    EXPECT_GT(stumbled, 25) << "Git has judged";
  }
}

TEST(RepositoryFiles, HeadConfigAndWhatLeadsElsewhereAreLookedAt) {
  const Filled filled;
  const auto seen = [&](const std::string& file, const std::string& text) {
    expect_seen(
        filled, file + " is " + text, [&](const fs::path& repository) { write(repository / file, text); }, true);
  };
  seen("HEAD", "ref: refs/heads/nobody\n");
  seen("HEAD", "ref: refs/heads/../x\n");
  seen("HEAD", "ref: refs/heads/master");
  seen("HEAD", std::string(40, 'a') + "\n");
  seen("config", "[core]\n\tbare = banana\n\trepositoryformatversion = 0\n");
  seen("config", "[core]\n\tbare = true\n\trepositoryformatversion = 7\n");
  seen("config", "[core]\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n");
  seen("config", "[core]\n\trepositoryformatversion = 0\n");
  seen("commondir", "/nowhere\n");
  seen("shallow", "garbage\n");
  seen("objects/info/alternates", "/nowhere\n");
  seen("packed-refs", std::string(64, '\0'));
  seen("packed-refs", "# pack-refs with: peeled fully-peeled sorted \nnot a ref\n");
  seen("refs/heads/agents/eve", "");
  seen("objects/aa/garbage", "garbage");
  expect_seen(
      filled, "HEAD is a folder",
      [](const fs::path& repository) {
        fs::remove(repository / "HEAD");
        fs::create_directory(repository / "HEAD");
      },
      true);
  for (const char* folder : {"objects/pack", "objects/info"}) {
    expect_seen(
        filled, std::string(folder) + " is a file",
        [&](const fs::path& repository) {
          fs::remove_all(repository / folder);
          write(repository / folder, "x");
        },
        true);
  }
  expect_seen(
      filled, "a folder of objects is a fifo",
      [](const fs::path& repository) {
        fs::remove_all(repository / "objects/ab");
        ::mkfifo((repository / "objects/ab").c_str(), 0600);
      },
      true);
  expect_seen(
      filled, "no refs", [](const fs::path& repository) { fs::remove_all(repository / "refs"); }, true);
  expect_seen(
      filled, "no folder at all",
      [](const fs::path& repository) {
        fs::remove_all(repository);
        write(repository, "a file");
      },
      true);
}

TEST(Sha1, IsThatOfTheStandard) {
  const auto hash = [](const std::vector<std::string>& pieces) {
    Sha1 sha;
    for (const std::string& piece : pieces) sha.add(piece);
    return hex_of(sha.finish());
  };
  EXPECT_EQ(hash({}), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(hash({"ab", "c"}), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(hash({"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"}), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(hash(std::vector<std::string>(10000, std::string(100, 'a'))), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

}  // namespace
}  // namespace sluice::store::test
