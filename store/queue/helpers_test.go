package queue

import (
	"os"
	"path/filepath"

	"pgregory.net/rapid"
)

func tempDir(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "queue-index-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func removeFiles(t *rapid.T, dir string, which func(name string) bool) {
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if which(name) {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}
