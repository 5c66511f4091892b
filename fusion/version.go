package fusion

import "runtime/debug"

// Version is the version of the program. A release build sets it with
// -ldflags "-X github.com/fusionmq/fusionmq/fusion.Version=v1.2.3"; otherwise it is what the Go tool recorded.
var Version = buildVersion()

func buildVersion() string {
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" && bi.Main.Version != "(devel)" {
		return bi.Main.Version
	}
	return "devel"
}
