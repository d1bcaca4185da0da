#pragma once

#include <string>
#include <vector>

namespace sluice {

/// Which of `gpus` each worker measures on, by its number: one each, since two on one GPU would disturb each other's times, and
/// from the last on, since a server generates on the first. `workers` is how many are wanted; 0: one a GPU. Throws InputError for
/// more workers than GPUs, and where there is none.
std::vector<std::string> gpus_of_workers(const std::vector<std::string>& gpus, int workers);

}  // namespace sluice
