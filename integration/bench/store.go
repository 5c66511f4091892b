package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// parseBenchmarks reads the output of go test -bench into name to unit to value.
func parseBenchmarks(out string) map[string]map[string]float64 {
	all := map[string]map[string]float64{}
	for l := range strings.Lines(out) {
		f := strings.Fields(l)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := f[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		m := map[string]float64{}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				m[f[i+1]] = v
			}
		}
		all[name] = m
	}
	return all
}

// goBench runs benchmarks of a package of the repository.
func (b *bench) goBench(pkg, pattern string) (map[string]map[string]float64, error) {
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "test", "./"+pkg, "-run", "^$", "-bench", pattern, "-benchtime", b.store, "-count", "1")
	cmd.Dir = filepath.Join(filepath.Dir(file), "../..")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -bench %s %s: %w\n%s", pattern, pkg, err, out)
	}
	fmt.Print(string(out))
	return parseBenchmarks(string(out)), nil
}
