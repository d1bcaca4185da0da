#pragma once

#include <string>

namespace sluice {

/// The model to use where none is named: that of the environment variable SLUICE_MODEL, or the mini model, looked
/// for in ./host/models/mini, beside the program (../host/models/mini) and where an installation puts it
/// (../share/sluice/models/mini). Throws InputError that lists where it looked.
std::string default_model();

}  // namespace sluice
