// A `MemTableRep` of RocksDB over the index in `index.rs`; `../memtable.rs` says
// what for. Whatever has to know RocksDB's classes is here, the rest there.
//
// Not taken over, since nothing here asks for it: approximate sizes with memtables,
// samples, and the checks of `paranoid_memory_checks` and
// `memtable_verify_per_key_checksum_on_seek`; with these on, rows would not be found.

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

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

// As `Row` in index.rs.
struct Row {
  std::atomic<Row*> next;
  char key[1];
};
constexpr size_t kRowHead = offsetof(Row, key);
static_assert(kRowHead == sizeof(void*), "a row is a link and a key");

}  // namespace

// Those of `../memtable.rs`; an index is opaque here.
extern "C" {
void* kedis_memtable_new(Allocator* allocator);
void kedis_memtable_free(void* index);
void kedis_memtable_insert(const void* index, Row* row);
const Row* kedis_memtable_first(const void* index);
const Row* kedis_memtable_last(const void* index);
const Row* kedis_memtable_at_or_after(const void* index, const char* key, size_t len);
const Row* kedis_memtable_before(const void* index, const char* key, size_t len);
}

namespace {

class Rep final : public MemTableRep {
 public:
  explicit Rep(Allocator* allocator)
      : MemTableRep(allocator), index_(kedis_memtable_new(allocator)) {}
  ~Rep() override { kedis_memtable_free(index_); }

  KeyHandle Allocate(const size_t len, char** key) override {
    *key = allocator_->AllocateAligned(kRowHead + len) + kRowHead;
    return *key;
  }

  void Insert(KeyHandle handle) override {
    char* row = static_cast<char*>(handle) - kRowHead;
    kedis_memtable_insert(index_, reinterpret_cast<Row*>(row));
  }

  bool Contains(const char* key) const override {
    Slice internal = rocksdb::GetLengthPrefixedSlice(key);
    const Row* row = AtOrAfter(internal);
    return row != nullptr && rocksdb::GetLengthPrefixedSlice(row->key) == internal;
  }

  // All memory is the allocator's, which counts it.
  size_t ApproximateMemoryUsage() override { return 0; }

  void Get(const LookupKey& key, void* args,
           bool (*callback)(void* args, const char* entry)) override {
    const Row* row = AtOrAfter(key.internal_key());
    while (row != nullptr && callback(args, row->key)) row = Next(row);
  }

  class Iterator final : public MemTableRep::Iterator {
   public:
    explicit Iterator(const Rep* rep) : rep_(rep) {}

    bool Valid() const override { return row_ != nullptr; }
    const char* key() const override { return row_->key; }
    void Next() override {
      row_ = Rep::Next(row_);
      // A flush takes rows of several memtables in turn, long after they were in a
      // cache: the next one of this memtable can come while others are written.
      const Row* next = row_ == nullptr ? nullptr : Rep::Next(row_);
      if (next != nullptr) {
        const char* memory = reinterpret_cast<const char*>(next);
        __builtin_prefetch(memory);
        __builtin_prefetch(memory + 64);
      }
    }
    void Prev() override { row_ = rep_->Before(rocksdb::GetLengthPrefixedSlice(row_->key)); }

    void Seek(const Slice& internal, const char* key) override {
      row_ = rep_->AtOrAfter(Target(internal, key));
    }
    void SeekForPrev(const Slice& internal, const char* key) override {
      Slice target = Target(internal, key);
      row_ = rep_->AtOrAfter(target);
      if (row_ == nullptr || rocksdb::GetLengthPrefixedSlice(row_->key) != target) {
        row_ = rep_->Before(target);
      }
    }
    void SeekToFirst() override { row_ = kedis_memtable_first(rep_->index_); }
    void SeekToLast() override { row_ = kedis_memtable_last(rep_->index_); }

   private:
    // The internal key that is wanted, given in one way or the other.
    static Slice Target(const Slice& internal, const char* key) {
      return key == nullptr ? internal : rocksdb::GetLengthPrefixedSlice(key);
    }

    const Rep* const rep_;
    const Row* row_ = nullptr;
  };

  MemTableRep::Iterator* GetIterator(Arena* arena) override {
    void* memory = arena == nullptr ? operator new(sizeof(Iterator))
                                    : arena->AllocateAligned(sizeof(Iterator));
    return new (memory) Iterator(this);
  }

 private:
  static const Row* Next(const Row* row) {
    return row->next.load(std::memory_order_acquire);
  }
  const Row* AtOrAfter(const Slice& key) const {
    return kedis_memtable_at_or_after(index_, key.data(), key.size());
  }
  const Row* Before(const Slice& key) const {
    return kedis_memtable_before(index_, key.data(), key.size());
  }

  void* const index_;
};

class Factory final : public MemTableRepFactory {
 public:
  explicit Factory(std::string name) : name_(std::move(name)) {}
  const char* Name() const override { return name_.c_str(); }

  using MemTableRepFactory::CreateMemTableRep;
  // Without the comparator: ours is the bytewise one, and the only one that DBs have.
  MemTableRep* CreateMemTableRep(const MemTableRep::KeyComparator&, Allocator* allocator,
                                 const rocksdb::SliceTransform*, rocksdb::Logger*) override {
    return new Rep(allocator);
  }

 private:
  const std::string name_;
};

}  // namespace

// Memory for nodes; it stays as long as the memtable. Where there is none left the
// process ends: no exception may pass through the caller, which is not C++.
extern "C" char* kedis_memtable_allocate(Allocator* allocator, size_t bytes) noexcept {
  return allocator->AllocateAligned(bytes);
}

// Makes the memtable known under a name, for option strings.
extern "C" void kedis_memtable_register(const char* name) {
  rocksdb::ObjectLibrary::Default()->AddFactory<MemTableRepFactory>(
      name, [](const std::string& uri, std::unique_ptr<MemTableRepFactory>* guard, std::string*) {
        guard->reset(new Factory(uri));
        return guard->get();
      });
}
