package meta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// The tables, by the names that their files have in the config directory.
const (
	TopicTable  = "topics.json"
	GroupTable  = "subscriptionGroup.json"
	OffsetTable = "consumerOffset.json"
)

const (
	backupSuffix  = ".bak"
	damagedSuffix = ".damaged-" // and the time in milliseconds
)

// maxFileBytes is the largest file that is read: five times what a million topics take.
const maxFileBytes = 1 << 30

// Damage is a file that could not be read at open and is kept under another name, or one that is missing while its
// backup is there, which no crash leaves.
type Damage struct {
	Table string // TopicTable, GroupTable or OffsetTable
	File  string // path of the file
	Kept  string // where its bytes are now; empty when there are none
	Err   error  // what was wrong with it; fs.ErrNotExist for a missing one
	Lost  bool   // neither the file nor its backup could be read: the table starts empty
}

// String says what happened in one line.
func (d Damage) String() string {
	s := fmt.Sprintf("%s cannot be used (%v)", d.File, d.Err)
	if d.Kept != "" {
		s += ", it is kept as " + d.Kept
	}
	if d.Lost {
		return s + ", and there is no other copy: the table starts empty"
	}
	return s + ", its backup is used"
}

// file is one JSON file that is only ever replaced as a whole. One caller at a time. A main file that could not be read
// is moved away at load, so it can never become the backup.
type file struct {
	fs      vfs.FS
	dir     string
	name    string
	now     func() time.Time
	damaged func(Damage)
}

func (f *file) path(suffix string) string { return filepath.Join(f.dir, f.name+suffix) }

// load gives the content of the file, or else of its backup, to use; with neither there it returns nil and use is not
// called. use returns an error for content that is not what the file should hold. A backup that was used is the file
// as well when load returns.
func (f *file) load(use func(document) error) error {
	var broken []Damage
	var missing error
	defer func() {
		for _, d := range broken {
			f.damaged(d)
		}
	}()
	for _, suffix := range []string{"", backupSuffix} {
		b, err := f.read(suffix, use)
		var damage *damageError
		switch {
		case err == nil:
			if suffix == "" {
				return nil
			}
			if missing != nil {
				broken = append(broken, Damage{Table: f.name, File: f.path(""), Err: missing})
			}
			if err := f.replace(b); err != nil {
				return fmt.Errorf("use the backup of %s: %w", f.path(""), err)
			}
			return nil
		case errors.Is(err, fs.ErrNotExist):
			if suffix == "" {
				missing = fs.ErrNotExist
			}
			continue
		case !errors.As(err, &damage):
			return fmt.Errorf("read %s: %w", f.path(suffix), err)
		}
		d := Damage{Table: f.name, File: f.path(suffix), Err: damage.err}
		kept := d.File + damagedSuffix + strconv.FormatInt(f.now().UnixMilli(), 10)
		if err := f.fs.Rename(d.File, kept); err != nil {
			return fmt.Errorf("keep the damaged %s aside: %w", d.File, err)
		}
		if err := f.fs.SyncDir(f.dir); err != nil {
			return fmt.Errorf("keep the damaged %s aside: %w", d.File, err)
		}
		d.Kept = kept
		broken = append(broken, d)
	}
	for i := range broken {
		broken[i].Lost = true
	}
	return nil
}

// damageError marks content that is not what the file should hold, in contrast to an error of the file system.
type damageError struct{ err error }

func (e *damageError) Error() string { return e.err.Error() }

// document is the top level of a file.
type document map[string]json.RawMessage

func (f *file) read(suffix string, use func(document) error) (b []byte, err error) {
	b, err = vfs.ReadFile(f.fs, f.path(suffix), maxFileBytes)
	if err != nil {
		return nil, err
	}
	var doc document
	if err := json.Unmarshal(quoteKeys(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))), &doc); err != nil {
		return nil, &damageError{err}
	}
	if err := use(doc); err != nil {
		return nil, &damageError{err}
	}
	return b, nil
}

// replace makes b the content of the file and its old content that of the backup; both are durable when replace returns
// nil. After an error, or a crash at any point, the file has its old or its new content.
func (f *file) replace(b []byte) error {
	return vfs.WriteFile(f.fs, f.path(""), b, f.path(backupSuffix))
}
