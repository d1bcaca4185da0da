#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// A file that is written whole or not at all. It is opened before the work, so that a bad path costs nothing, beside the place
/// where it will stand, and moved there once it is whole; an earlier file stays until then, and signals that end the process
/// leave nothing else. Pipes and devices are written directly; a named pipe waits a second for its reader. One at a time.
class OutputFile {
 public:
  /// Throws InputError if `path` cannot be written, is "-", or is one of `inputs` or a file of a folder among them.
  OutputFile(const std::string& path, const std::vector<std::string>& inputs);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Has `write_to` write to an empty file, given by its path, which then becomes the file. Throws InputError, also in place of
  /// those of `write_to`, which know another name.
  void write(const std::function<void(const std::string&)>& write_to);
  /// The same for a text.
  void write(std::string_view text);

 private:
  void keep();

  std::string path_;
  std::string open_path_;
  int pipe_ = -1;  // held open for its reader
  bool kept_ = false;
};

}  // namespace sluice
