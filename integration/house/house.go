// Package house holds the rules of the repository that a compiler does not check, as tests: imports point down only, the store opens
// no socket, no test can skip. The rules are in this file as data; house_test.go applies them to every Go file of the repository.
package house

// Module is the path prefix of every module of the repository.
const Module = "github.com/fusionmq/fusionmq/"

// Leaves import nothing of this repository, so that a client can use them without the broker.
var Leaves = []string{"metaq/remoting", "notify/wire", "notify/api", "store/filter"}

// Below lists, for each module, what it may import from this repository besides itself: a module means all its packages, a longer
// path that package alone.
var Below = map[string][]string{
	"store":       {},
	"socket":      {},
	"notify":      {"socket", "store"},
	"metaq":       {"socket", "store"},
	"sdk-go":      Leaves,
	"console":     append([]string{"sdk-go"}, Leaves...),
	"migration":   append([]string{"sdk-go", "store"}, Leaves...),
	"ops":         append([]string{"migration", "sdk-go", "store", "notify/exchange"}, Leaves...), // the exchange: a check computes targets as the server does
	"fusion":      {"socket", "store", "notify", "metaq", "console"},
	"integration": append([]string{"sdk-go"}, Leaves...), // the outside of the system
}

// Forbidden imports: by module ("" is everywhere), for code that is no test.
var Forbidden = map[string][]string{
	"":      {"log", "io/ioutil", "github.com/stretchr/testify", "github.com/sirupsen/logrus"},
	"store": {"net", "net/http", "flag", "os/signal", "github.com/spf13/cobra"}, // no sockets, no flags
}

// Only lists dependencies that belong to certain modules.
var Only = map[string][]string{
	"github.com/apache/rocketmq-client-go/v2": {"integration"}, // the peer we test with, never what we build on
	"github.com/cloudwego/netpoll":            {"socket"},
	"github.com/spf13/cobra":                  {"fusion", "ops", "integration"},
	"github.com/prometheus/client_golang":     {"fusion", "metaq", "notify", "store"},
	"github.com/grafana/pyroscope-go":         {"fusion"},
}

// MaxLines is how long a file may be that a person wrote.
const MaxLines = 700
