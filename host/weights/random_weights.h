#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/transformer/model.h"

namespace sluice {

/// Names of the public models whose geometry is known, smallest first: "qwen3-0.6b", ...
std::vector<std::string> known_geometries();

/// The shape of a public model, from its config.json, with `layers` layers (0: all of them). Throws InputError for a name that is
/// not known, listing those that are, and for more layers than the model has.
ModelConfig known_geometry(const std::string& name, int layers = 0);

/// A model of this shape with random weights in bf16: normal with a standard deviation of 0.02, gains of norms 1. The same for
/// every call. For measuring speed: what it generates means nothing. Host memory holds one tensor at a time.
std::unique_ptr<Model> create_random_model(const ModelConfig& config, Device& device);

}  // namespace sluice
