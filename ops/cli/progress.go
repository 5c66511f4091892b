package cli

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar on a terminal, nothing elsewhere.
type progress struct {
	out  *os.File // nil: nobody looks
	name string
	bar  *progressbar.ProgressBar
}

func (a *app) newProgress() *progress {
	f, ok := a.Err.(*os.File)
	if !ok || a.output == "json" || !term.IsTerminal(int(f.Fd())) {
		return &progress{}
	}
	return &progress{out: f}
}

// step shows how much of a step is done.
func (p *progress) step(name string, done, total int64) {
	if p.out == nil {
		return
	}
	if p.bar == nil || p.name != name {
		p.done()
		p.name = name
		p.bar = progressbar.NewOptions64(max(total, 1), progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(name),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
	}
	_ = p.bar.Set64(min(done, total)) // what cannot be shown is no failure
}

func (p *progress) done() {
	if p.bar != nil {
		_ = p.bar.Finish() // as above
		p.bar = nil
	}
}
