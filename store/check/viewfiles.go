package check

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/fusionmq/fusionmq/store/bits"
	"github.com/fusionmq/fusionmq/store/lookup"
)

// keyFiles verifies each file of the key index. Gaps between them are no findings: what is missing is read from the log.
func (c *checker) keyFiles() error {
	return c.viewFiles(c.at.Keys, "keys", ".keys", "key index file", func(path string) (string, error) {
		_, err := lookup.Verify(c.FS, path)
		var corrupt *lookup.CorruptError
		if errors.As(err, &corrupt) {
			return corrupt.What, nil
		}
		return "", err
	})
}

// bitFiles verifies each file of filter bits. What is missing is evaluated.
func (c *checker) bitFiles() error {
	return c.viewFiles(c.at.Bits, "bits", ".bits", "file of filter bits", func(path string) (string, error) {
		err := bits.Verify(c.FS, path)
		var corrupt *bits.CorruptError
		if errors.As(err, &corrupt) {
			return corrupt.What, nil
		}
		return "", err
	})
}

// viewFiles verifies each file in a directory of views that need not be complete. verify says what is wrong with one.
func (c *checker) viewFiles(dir, area, suffix, kind string, verify func(path string) (what string, err error)) error {
	names, err := c.FS.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for i, name := range names {
		path := filepath.Join(dir, name)
		switch {
		case strings.HasSuffix(name, ".tmp"):
			c.find(Note, area, path, -1, "was not finished", todoNothing)
		case !strings.HasSuffix(name, suffix):
			c.find(Note, area, path, -1, "is no "+kind, "Remove it if nobody needs it.")
		default:
			what, err := verify(path)
			if err != nil {
				return err
			}
			if what != "" {
				c.find(View, area, path, -1, what, todoNothing)
			}
		}
		if err := c.progress(area+" files", int64(i+1), int64(len(names))); err != nil {
			return err
		}
	}
	return nil
}
