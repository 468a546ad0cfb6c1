// Memory that is charged to the block cache without entries in it. See reserve.rs.

#include <cstddef>
#include <memory>

#include "cache/cache_reservation_manager.h"
#include "rocksdb/options.h"
#include "rocksdb/table.h"

namespace {

using rocksdb::CacheEntryRole;
using rocksdb::CacheReservationManagerImpl;
using Reservation = CacheReservationManagerImpl<CacheEntryRole::kMisc>;

}  // namespace

// A reservation in the block cache of these options, or null if they have none. RocksDB's C
// interface keeps the options in the first and only member of the struct that it hands out.
extern "C" void* kedis_reservation_new(const rocksdb::Options* options) noexcept {
  const auto* table = options->table_factory->GetOptions<rocksdb::BlockBasedTableOptions>();
  if (table == nullptr || table->block_cache == nullptr) return nullptr;
  return new std::shared_ptr<Reservation>(std::make_shared<Reservation>(table->block_cache));
}

// Sets how many bytes are reserved. One thread at a time.
extern "C" void kedis_reservation_set(std::shared_ptr<Reservation>* reservation,
                                      size_t bytes) noexcept {
  // It fails only if the cache has a strict capacity limit; ours has not.
  (*reservation)->UpdateCacheReservation(bytes).PermitUncheckedError();
}

extern "C" void kedis_reservation_free(std::shared_ptr<Reservation>* reservation) noexcept {
  delete reservation;
}
