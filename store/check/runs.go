package check

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/fusionmq/fusionmq/store/runs"
)

// runFiles verifies each file of what waits. Which of them count, the checkpoint says.
func (c *checker) runFiles() error {
	names, err := c.FS.List(c.at.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for i, name := range names {
		path := filepath.Join(c.at.State, name)
		if strings.HasSuffix(name, ".tmp") {
			c.find(Note, "state", path, -1, "was not finished", todoNothing)
			continue
		}
		err := runs.Verify(c.FS, path)
		var corrupt *runs.CorruptError
		if errors.As(err, &corrupt) {
			c.find(View, "state", path, -1, corrupt.Error(), todoRepair)
		} else if err != nil {
			return err
		}
		if err := c.progress("state files", int64(i+1), int64(len(names))); err != nil {
			return err
		}
	}
	return nil
}
