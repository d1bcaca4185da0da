#pragma once

#include <string>

namespace sluice {

/// The path of the model that `named` means; "" is the default model (default_model.h). A path that is there is meant as it
/// stands. A name without a slash that is not there means NAME.gguf or the directory NAME in the user's folder of models,
/// ${XDG_DATA_HOME:-$HOME/.local/share}/sluice/models, where `./dev model` puts smollm2. Throws InputError for a smollm2 that is
/// in neither place; any other path is given as it stands, and whoever opens it says that it is not there.
std::string model_path(const std::string& named);

}  // namespace sluice
