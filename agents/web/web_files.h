#pragma once

#include <span>
#include <string_view>

namespace sluice {

/// A file of the page, as the program holds it.
struct WebFile {
  std::string_view address;     // "/web/app.js"
  std::string_view media_type;  // "text/javascript; charset=utf-8"
  std::string_view entity_tag;  // with its quotes; changes whenever the bytes do
  std::string_view bytes;
};

/// All files of the page, "/" among them. Built from src/ by build.mjs; where that could not run, one alone, which says how to
/// build the page.
std::span<const WebFile> web_files();
/// Whether the page is part of the program.
inline bool has_page() { return web_files().size() > 1; }

}  // namespace sluice
