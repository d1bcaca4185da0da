#include "tests/generation/broken_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/source_path.h"

namespace sluice::test {

std::string write_broken_model() {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / ("sluice-broken-model-" + std::to_string(::getpid()));
  fs::create_directory(folder);
  const fs::path source = testing::source_path("host/models/mini");
  for (const char* file : {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors"}) {
    fs::copy_file(source / file, folder / file);
  }
  std::fstream weights(folder / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  uint64_t size = 0;
  weights.read(reinterpret_cast<char*>(&size), sizeof(size));
  std::string header(size, ' ');
  weights.read(header.data(), static_cast<std::streamsize>(size));
  const nlohmann::json offsets = nlohmann::json::parse(header).at("model.norm.weight").at("data_offsets");
  weights.seekp(static_cast<std::streamoff>(8 + size + offsets.at(0).get<uint64_t>()));
  weights << std::string(offsets.at(1).get<uint64_t>() - offsets.at(0).get<uint64_t>(), '\xff');
  return folder.string();
}

}  // namespace sluice::test
