#pragma once

#include "host/serving/engine.h"

namespace sluice::testing {

/// `prompt` tokens of a vocabulary, others for another `salt`, of which `max_tokens` are generated whatever they are.
inline Request drawn_request(int vocabulary, int prompt, int max_tokens, int salt) {
  Request request;
  for (int i = 0; i < prompt; ++i) request.prompt.push_back((i * (31 + 2 * salt) + i * i % 13 + salt) % vocabulary);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

}  // namespace sluice::testing
