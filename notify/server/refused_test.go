package server

import (
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// docs/notify-wire.md lists exactly the opcodes of NOTIFY_V1 that a client may send or answer and that are not served, by their names.
func TestWhatIsNotServedIsListed(t *testing.T) {
	page, err := os.ReadFile("../../docs/notify-wire.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- refused -->")
	table, _, ok := strings.Cut(table, "<!-- /refused -->")
	if !ok {
		t.Fatal("docs/notify-wire.md has no table of what is refused")
	}
	listed := map[wire.Opcode]string{}
	for _, m := range regexp.MustCompile(`\b([0-9]{2}) ([A-Z_]+)\b`).FindAllStringSubmatch(table, -1) {
		n, err := strconv.ParseUint(m[1], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		listed[wire.Opcode(n)] = m[2]
	}
	c := newRig(t, nil).dial()
	c.metadata(wire.AllFeatures, "S-a")
	refused := map[wire.Opcode]string{}
	for op := range wire.Opcode(0x20) { // those above are agreed upon
		name := op.String()
		if op == wire.OpDeliver || strings.HasPrefix(name, "0x") {
			continue // the server's, and those that nobody knows
		}
		if f := c.call(op, nil, nil); f.Status == wire.StatusNoOpcode {
			refused[op] = name
		}
	}
	if !maps.Equal(listed, refused) {
		t.Errorf("docs/notify-wire.md lists %v, refused are %v", listed, refused)
	}
}
