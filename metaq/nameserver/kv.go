package nameserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// KVFile is the name of the key-value configuration below the name server's directory, in RocketMQ's form:
// {"configTable":{NAMESPACE:{KEY:VALUE}}}.
const KVFile = "kvConfig.json"

// Bounds of the key-value configuration.
const (
	maxKVValue = 1 << 20
	maxKVBytes = 16 << 20 // all of it
)

// kv is the key-value configuration. With a directory a change is on the disk before put and remove return.
type kv struct {
	fs   vfs.FS
	path string // "" keeps nothing

	mu    sync.Mutex
	table map[string]map[string]string
	bytes int
}

type kvFile struct {
	ConfigTable map[string]map[string]string `json:"configTable"`
}

// openKV reads the file below dir. One that cannot be read is kept aside and its backup used; the error says so and is not fatal
// unless kv is nil.
func openKV(fsys vfs.FS, dir string, now func() int64) (*kv, error) {
	k := &kv{fs: fsys, table: map[string]map[string]string{}}
	if dir == "" {
		return k, nil
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("nameserver: %w", err)
	}
	k.path = filepath.Join(dir, KVFile)
	err := k.load(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = k.load(k.backup()); errors.Is(err, fs.ErrNotExist) {
			return k, nil
		}
	}
	if err == nil {
		return k, nil
	}
	kept := k.path + ".damaged-" + strconv.FormatInt(now(), 10)
	if rerr := fsys.Rename(k.path, kept); rerr != nil {
		return nil, fmt.Errorf("nameserver: %w; keep it aside: %w", err, rerr)
	}
	if berr := k.load(k.backup()); berr != nil {
		return k, fmt.Errorf("%w; kept as %s; the backup cannot be used either, the configuration starts empty: %w", err, kept, berr)
	}
	return k, fmt.Errorf("%w; kept as %s and the backup used", err, kept)
}

func (k *kv) backup() string { return k.path + ".bak" }

func (k *kv) load(path string) error {
	b, err := vfs.ReadFile(k.fs, path, 8*maxKVBytes) // room for escapes
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	var f kvFile
	if err := json.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	k.table, k.bytes = map[string]map[string]string{}, 0
	for ns, m := range f.ConfigTable {
		if len(m) == 0 {
			continue
		}
		k.table[ns] = m
		for key, v := range m {
			k.bytes += len(ns) + len(key) + len(v)
		}
	}
	return nil
}

func (k *kv) get(ns, key string) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.table[ns][key]
	return v, ok
}

// namespace returns a copy of a namespace, nil when it was never used. One whose last key was removed is there and empty until
// the next start, as with RocketMQ.
func (k *kv) namespace(ns string) map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.table[ns])
}

func (k *kv) put(ns, key, value string) error {
	if len(value) > maxKVValue {
		return fmt.Errorf("value of %d bytes, the limit is %d", len(value), maxKVValue)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	old, had := k.table[ns][key]
	size := k.bytes + len(value) - len(old)
	if !had {
		size += len(ns) + len(key)
	}
	if size > maxKVBytes {
		return fmt.Errorf("the configuration would exceed %d bytes", maxKVBytes)
	}
	if had && old == value {
		return nil
	}
	next := maps.Clone(k.table)
	next[ns] = maps.Clone(next[ns])
	if next[ns] == nil {
		next[ns] = map[string]string{}
	}
	next[ns][key] = value
	return k.replace(next, size)
}

func (k *kv) remove(ns, key string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	old, had := k.table[ns][key]
	if !had {
		return nil
	}
	next := maps.Clone(k.table)
	next[ns] = maps.Clone(next[ns])
	delete(next[ns], key)
	return k.replace(next, k.bytes-len(ns)-len(key)-len(old))
}

// replace writes the new table and then uses it, so that a failed write changes nothing. mu is held.
func (k *kv) replace(next map[string]map[string]string, size int) error {
	if k.path != "" {
		b, err := json.Marshal(kvFile{next})
		if err != nil {
			return err
		}
		if err := vfs.WriteFile(k.fs, k.path, b, k.backup()); err != nil {
			return fmt.Errorf("write %s: %w", KVFile, err)
		}
	}
	k.table, k.bytes = next, size
	return nil
}
