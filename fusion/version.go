package fusion

import (
	"cmp"
	"runtime/debug"
)

// linked is what a build sets with -ldflags "-X github.com/fusionmq/fusionmq/fusion.linked=v1.2.3". The linker can only set a
// variable that no code initialises.
var linked string

// Version is the version of the program: what the build was told, or else what the Go tool recorded.
var Version = cmp.Or(linked, buildVersion())

func buildVersion() string {
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" && bi.Main.Version != "(devel)" {
		return bi.Main.Version
	}
	return "devel"
}
