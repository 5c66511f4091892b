package fusion

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// described gives name and help of a metric.
func described(d *prometheus.Desc) (name, help string) {
	m := regexp.MustCompile(`fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)"`).FindStringSubmatch(d.String())
	return m[1], strings.ReplaceAll(m[2], `\"`, `"`)
}

// TestMetricsAreDocumented compares the table in docs/operations.md with the page. UPDATE=1 writes the table.
func TestMetricsAreDocumented(t *testing.T) {
	const path, begin, end = "../docs/operations.md", "-run Documented -->\n", "<!-- end of metrics -->"
	ch := make(chan *prometheus.Desc, 1000)
	(&collector{}).Describe(ch)
	close(ch)
	var b strings.Builder
	b.WriteString("\n| metric | meaning |\n|---|---|\n")
	for d := range ch {
		name, help := described(d)
		if !strings.HasPrefix(name, "rocketmq_") && !strings.HasPrefix(name, "fusionmq_") {
			t.Errorf("%s has a foreign prefix", name)
		}
		if !strings.HasSuffix(help, ".") {
			t.Errorf("help of %s is no sentence: %q", name, help)
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, help)
	}
	b.WriteString("\n")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost the marks around its table", path)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != b.String() {
		t.Errorf("the table in %s differs from the metrics; run: UPDATE=1 go test . -run Documented", path)
	}
}
