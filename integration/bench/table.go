package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// row is one budget. A zero baseline means that the budget is absolute.
type row struct {
	budget             string
	measured, baseline string
	ratio              string
	reached            string // "yes", "no", "reported" or "not measured"
}

type table struct{ rows []row }

// verdict turns a comparison into the last column.
func verdict(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

// atLeast adds a budget of the form: measured is at least want times base (more is better).
func (t *table) atLeast(budget string, measured, base, want float64, unit string) {
	t.add(row{budget, quantity(measured, unit), quantity(base, unit), fmt.Sprintf("%.2f (>= %.2f)", measured/base, want), verdict(base > 0 && measured/base >= want)})
}

// atMost adds a budget of the form: measured is at most want times base (less is better).
func (t *table) atMost(budget string, measured, base, want float64, unit string) {
	t.add(row{budget, quantity(measured, unit), quantity(base, unit), fmt.Sprintf("%.2f (<= %.2f)", measured/base, want), verdict(base > 0 && measured/base <= want)})
}

// below adds an absolute budget.
func (t *table) below(budget string, measured, limit float64, unit string) {
	t.add(row{budget, quantity(measured, unit), "limit " + quantity(limit, unit), fmt.Sprintf("%.2f (<= 1)", measured/limit), verdict(measured <= limit)})
}

// reported adds a figure without a bar.
func (t *table) reported(budget, measured, baseline string) {
	t.add(row{budget, measured, baseline, "", "reported"})
}

// unmeasured says why a budget has no figure.
func (t *table) unmeasured(budget, why string) {
	t.add(row{budget, "not measured: " + why, "", "", "not measured"})
}

func (t *table) add(r row) {
	t.rows = append(t.rows, r)
	fmt.Println(strings.Join([]string{r.budget, r.measured, r.baseline, r.ratio, r.reached}, " | "))
}

func (t *table) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 4, 1, ' ', 0)
	fmt.Fprintln(tw, "budget\t| measured\t| baseline\t| ratio\t| reached")
	for _, r := range t.rows {
		fmt.Fprintf(tw, "%s\t| %s\t| %s\t| %s\t| %s\n", r.budget, r.measured, r.baseline, r.ratio, r.reached)
	}
	_ = tw.Flush()
}

// quantity prints a figure with three digits that count.
func quantity(v float64, unit string) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f M%s", v/1e6, unit)
	case v >= 1e4:
		return fmt.Sprintf("%.1f k%s", v/1e3, unit)
	case v >= 100:
		return fmt.Sprintf("%.0f %s", v, unit)
	case v >= 1:
		return fmt.Sprintf("%.2f %s", v, unit)
	default:
		return fmt.Sprintf("%.3f %s", v, unit)
	}
}
