// Stands in for the bundle where Node or its packages were missing when the program was built.

#include "agents/web/web_files.h"

namespace sluice {

std::span<const WebFile> web_files() {
  static constexpr WebFile kFiles[] = {
      {"/", "text/html; charset=utf-8", "\"missing\"",
       "<!doctype html><html lang=\"en\"><title>Sluice</title><h1>The page is not part of this program</h1>"
       "<p>Node was missing when it was built. Run <code>./dev build</code>, which installs it, or install nodejs and npm, run "
       "<code>npm ci</code> in <code>agents/web</code>, and configure and build again.</p>"
       "<p>The API needs no page: <a href=\"/v1/openapi.json\">its addresses</a>.</p></html>\n"},
  };
  return kFiles;
}

}  // namespace sluice
