package check

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/fusionmq/fusionmq/store/lookup"
)

// keyFiles verifies each file of the key index. Gaps between them are no findings: what is missing is read from the log.
func (c *checker) keyFiles() error {
	names, err := c.FS.List(c.at.Keys)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for i, name := range names {
		path := filepath.Join(c.at.Keys, name)
		switch {
		case strings.HasSuffix(name, ".tmp"):
			c.find(Note, "keys", path, -1, "was not finished", todoNothing)
		case !strings.HasSuffix(name, ".keys"):
			c.find(Note, "keys", path, -1, "is no key index file", "Remove it if nobody needs it.")
		default:
			_, err := lookup.Verify(c.FS, path)
			var corrupt *lookup.CorruptError
			if errors.As(err, &corrupt) {
				c.find(View, "keys", path, -1, corrupt.What, todoNothing)
			} else if err != nil {
				return err
			}
		}
		if err := c.progress("key files", int64(i+1), int64(len(names))); err != nil {
			return err
		}
	}
	return nil
}
