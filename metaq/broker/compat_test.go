package broker

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/remoting"
)

// docs/compat.md lists exactly the codes that are served, by their names.
func TestCompatTableIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../docs/compat.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- served -->")
	table, _, _ = strings.Cut(table, "<!-- /served -->")
	listed := map[int32]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| ([A-Z_0-9]+) \|`).FindAllStringSubmatch(table, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		listed[int32(n)] = m[2]
	}
	served := map[int32]string{}
	for _, code := range append(slices.Collect(maps.Keys(handlers)), remoting.ReqSendMessage, remoting.ReqSendMessageV2, remoting.ReqSendBatchMessage, remoting.ReqEndTransaction, remoting.ReqPullMessage, remoting.ReqLitePullMessage) {
		served[code] = remoting.RequestName(code)
	}
	if !maps.Equal(listed, served) {
		t.Errorf("docs/compat.md lists %v, served are %v", fmt.Sprint(listed), fmt.Sprint(served))
	}
}
