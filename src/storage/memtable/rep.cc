// A `MemTableRep` of RocksDB over the segments in `segments.rs`; `../memtable.rs` says why.
// This file has what needs RocksDB's classes, the Rust files have the rest.
//
// Not implemented, since Kedis does not use it: approximate sizes that include memtables,
// random samples, and the checks of `paranoid_memory_checks` and
// `memtable_verify_per_key_checksum_on_seek`, with which no row would be found. Rows of a
// key must be added in the order of their versions, which `experimental_mempurge_threshold`
// does not keep, and must not change, as they do with `inplace_update_support`.
// `options.rs` refuses these options.

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "db/dbformat.h"
#include "db/lookup_key.h"
#include "memory/arena.h"
#include "rocksdb/memtablerep.h"
#include "rocksdb/utilities/object_registry.h"

namespace {

using rocksdb::Allocator;
using rocksdb::Arena;
using rocksdb::KeyHandle;
using rocksdb::LookupKey;
using rocksdb::MemTableRep;
using rocksdb::MemTableRepFactory;
using rocksdb::Slice;

// The same layout as `Row` in row.rs.
struct Row {
  std::atomic<Row*> next;
  char key[1];
};
constexpr size_t kRowHead = offsetof(Row, key);
static_assert(kRowHead == sizeof(void*), "a row is a link and a key");

}  // namespace

// The functions of `../memtable.rs`. What the `void` pointers point to is opaque here.
extern "C" {
struct RawKey {
  const char* bytes;
  size_t len;
};
void* kedis_memtable_new(Allocator* allocator);
void kedis_memtable_free(void* memtable);
void kedis_memtable_insert(const void* memtable, Row* row);
uint64_t kedis_memtable_with_versions_of(const void* memtable, RawKey key);
const Row* kedis_memtable_at_or_after(const void* memtable, size_t segment, RawKey key);
void* kedis_cursor_new(const void* memtable, bool within_map);
void kedis_cursor_free(void* cursor);
const Row* kedis_cursor_first(void* cursor);
const Row* kedis_cursor_last(void* cursor);
const Row* kedis_cursor_next(void* cursor);
const Row* kedis_cursor_previous(void* cursor);
const Row* kedis_cursor_at_or_after(void* cursor, RawKey key);
const Row* kedis_cursor_at_or_before(void* cursor, RawKey key);
}

namespace {

RawKey Raw(const Slice& internal) { return {internal.data(), internal.size()}; }

class Rep final : public MemTableRep {
 public:
  explicit Rep(Allocator* allocator)
      : MemTableRep(allocator), memtable_(kedis_memtable_new(allocator)) {}
  ~Rep() override { kedis_memtable_free(memtable_); }

  KeyHandle Allocate(const size_t len, char** key) override {
    *key = allocator_->AllocateAligned(kRowHead + len) + kRowHead;
    return *key;
  }

  void Insert(KeyHandle handle) override {
    char* row = static_cast<char*>(handle) - kRowHead;
    kedis_memtable_insert(memtable_, reinterpret_cast<Row*>(row));
  }

  bool Contains(const char* key) const override {
    bool found = false;
    const Slice internal = rocksdb::GetLengthPrefixedSlice(key);
    ForEach(internal, [&](const char* row) {
      found = rocksdb::GetLengthPrefixedSlice(row) == internal;
      return false;
    });
    return found;
  }

  // All memory but 3 KiB is the allocator's, which counts it.
  size_t ApproximateMemoryUsage() override { return 0; }

  void Get(const LookupKey& key, void* args,
           bool (*callback)(void* args, const char* entry)) override {
    ForEach(key.internal_key(), [=](const char* row) { return callback(args, row); });
  }

  class Iterator final : public MemTableRep::Iterator {
   public:
    Iterator(const Rep* rep, bool within_map)
        : cursor_(kedis_cursor_new(rep->memtable_, within_map)) {}
    ~Iterator() override { kedis_cursor_free(cursor_); }

    bool Valid() const override { return row_ != nullptr; }
    const char* key() const override { return row_->key; }
    void Next() override { row_ = kedis_cursor_next(cursor_); }
    void Prev() override { row_ = kedis_cursor_previous(cursor_); }
    void Seek(const Slice& internal, const char* key) override {
      row_ = kedis_cursor_at_or_after(cursor_, Target(internal, key));
    }
    void SeekForPrev(const Slice& internal, const char* key) override {
      row_ = kedis_cursor_at_or_before(cursor_, Target(internal, key));
    }
    void SeekToFirst() override { row_ = kedis_cursor_first(cursor_); }
    void SeekToLast() override { row_ = kedis_cursor_last(cursor_); }

   private:
    // The internal key to seek: `key`, which begins with its length, or else `internal`.
    static RawKey Target(const Slice& internal, const char* key) {
      return Raw(key == nullptr ? internal : rocksdb::GetLengthPrefixedSlice(key));
    }

    void* const cursor_;
    const Row* row_ = nullptr;
  };

  MemTableRep::Iterator* GetIterator(Arena* arena) override { return NewIterator(arena, false); }

  // For reads that stay within the prefix that the prefix extractor takes from a key.
  // `KeyHasher::map` in filter.rs knows which rows have one.
  MemTableRep::Iterator* GetDynamicPrefixIterator(Arena* arena) override {
    return NewIterator(arena, true);
  }

 private:
  Iterator* NewIterator(Arena* arena, bool within_map) const {
    void* memory = arena == nullptr ? operator new(sizeof(Iterator))
                                    : arena->AllocateAligned(sizeof(Iterator));
    return new (memory) Iterator(this, within_map);
  }

  // Calls `each` with the rows of a user key, from this version on to older ones, as long
  // as it returns true.
  template <typename Each>
  void ForEach(const Slice& internal, Each each) const {
    const Slice user = rocksdb::ExtractUserKey(internal);
    uint64_t segments = kedis_memtable_with_versions_of(memtable_, Raw(internal));
    while (segments != 0) {
      const size_t newest = 63 - std::countl_zero(segments);
      segments ^= uint64_t{1} << newest;
      const Row* row = kedis_memtable_at_or_after(memtable_, newest, Raw(internal));
      while (row != nullptr && UserKey(row) == user) {
        if (!each(row->key)) return;
        row = row->next.load(std::memory_order_acquire);
      }
    }
  }

  static Slice UserKey(const Row* row) {
    return rocksdb::ExtractUserKey(rocksdb::GetLengthPrefixedSlice(row->key));
  }

  void* const memtable_;
};

class Factory final : public MemTableRepFactory {
 public:
  explicit Factory(std::string name) : name_(std::move(name)) {}
  const char* Name() const override { return name_.c_str(); }

  using MemTableRepFactory::CreateMemTableRep;
  // The comparator is ignored: rows are ordered bytewise, and DBs have no other comparator.
  MemTableRep* CreateMemTableRep(const MemTableRep::KeyComparator&, Allocator* allocator,
                                 const rocksdb::SliceTransform*, rocksdb::Logger*) override {
    return new Rep(allocator);
  }

 private:
  const std::string name_;
};

}  // namespace

// Allocates memory for nodes and filters, which stays as long as the memtable. `noexcept`:
// if there is none left the process ends, since no exception may pass through Rust code.
extern "C" char* kedis_memtable_allocate(Allocator* allocator, size_t bytes) noexcept {
  return allocator->AllocateAligned(bytes);
}

// Registers the memtable under a name for option strings.
extern "C" void kedis_memtable_register(const char* name) {
  rocksdb::ObjectLibrary::Default()->AddFactory<MemTableRepFactory>(
      name, [](const std::string& uri, std::unique_ptr<MemTableRepFactory>* guard, std::string*) {
        guard->reset(new Factory(uri));
        return guard->get();
      });
}
