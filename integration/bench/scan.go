package main

import (
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"
)

// scanTime is how long one goroutine takes to read and checksum n bytes of the files of dir.
func scanTime(dir string, n int64) (time.Duration, error) {
	files, err := filepath.Glob(filepath.Join(dir, "[0-9]*"))
	if err != nil {
		return 0, err
	}
	start := time.Now()
	buf := make([]byte, 1<<20)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return 0, err
		}
		for n > 0 {
			k, err := f.Read(buf)
			crc32.ChecksumIEEE(buf[:k])
			n -= int64(k)
			if err == io.EOF {
				break
			}
			if err != nil {
				_ = f.Close()
				return 0, err
			}
		}
		_ = f.Close()
	}
	return time.Since(start), nil
}
