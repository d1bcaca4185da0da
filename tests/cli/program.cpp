#include "tests/cli/program.h"

#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace sluice::test {
namespace fs = std::filesystem;

namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string Folder::write(const std::string& name, const std::string& content) const {
  std::ofstream(path(name), std::ios::binary) << content;
  return path(name);
}

std::string Folder::link_mini_model(const std::string& name) const {
  fs::create_directory(path(name));
  for (const char* file : {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "vocabulary.json"}) {
    fs::create_symlink(fs::path(SLUICE_SOURCE_DIR) / "host/models/mini" / file, fs::path(path(name)) / file);
  }
  return path(name);
}

Ran run_sluice(const std::vector<std::string>& arguments) {
  std::string line = "exec \"$SLUICE\"";
  for (const std::string& argument : arguments) line += " " + quoted(argument);
  return run_shell(line);
}

Ran run_shell(const std::string& line) {
  const Folder folder;
  const Folder said;
  const std::string command = "cd " + quoted(folder.path("")) + " && SLUICE=" + quoted(SLUICE_PROGRAM) + " exec bash -c " +
                              quoted(line) + " > " + quoted(said.path("out")) + " 2> " + quoted(said.path("err"));
  Ran ran;
  const auto started = std::chrono::steady_clock::now();
  const int status = std::system(command.c_str());
  ran.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ran.out = read_file(said.path("out"));
  ran.err = read_file(said.path("err"));
  return ran;
}

}  // namespace sluice::test
