#include "store/store.h"

#include <fmt/format.h>

#include <ctime>

#include "store/database/migrations.h"
#include "store/database/sqlite.h"
#include "store/error.h"
#include "store/folder/sodium.h"

namespace sluice::store {

Time now() {
  timespec time{};  // std::chrono::system_clock counts nanoseconds, which end in 2262
  ::clock_gettime(CLOCK_REALTIME, &time);
  return int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000;
}

Store::Store(const std::string& path, StoreOptions options)
    : options_(std::move(options)),
      database_(std::make_unique<Database>(path, Database::Mode::kReadWrite, options_.busy_timeout_ms)) {
  start_sodium();
  require_current(*database_);
}

Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

}  // namespace sluice::store
