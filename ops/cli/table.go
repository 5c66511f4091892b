package cli

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/lipgloss"
)

// table is a result for people: a line of titles and lines of cells, numbers to the right.
type table struct {
	titles []string
	right  []bool // columns of numbers
	rows   [][]string
}

// newTable makes a table; a title that ends with a blank is over numbers.
func newTable(titles ...string) *table {
	t := &table{}
	for _, title := range titles {
		name, number := strings.CutSuffix(title, " ")
		t.titles = append(t.titles, name)
		t.right = append(t.right, number)
	}
	return t
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table with two blanks between columns. Titles are dim on a terminal.
func (t *table) write(w io.Writer) error {
	dim := lipgloss.NewRenderer(w).NewStyle().Faint(true)
	widths := make([]int, len(t.titles))
	for _, row := range append([][]string{t.titles}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], lipgloss.Width(cell))
		}
	}
	var b strings.Builder
	line := func(row []string, style func(...string) string) {
		var l strings.Builder
		for i, cell := range row {
			if i > 0 {
				l.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-lipgloss.Width(cell))
			if t.right[i] {
				l.WriteString(pad + cell)
			} else {
				l.WriteString(cell + pad)
			}
		}
		b.WriteString(style(strings.TrimRight(l.String(), " ")) + "\n")
	}
	if slices.ContainsFunc(t.titles, func(s string) bool { return s != "" }) {
		line(t.titles, dim.Render)
	}
	for _, row := range t.rows {
		line(row, func(s ...string) string { return s[0] })
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// clean makes text from outside harmless on a terminal: control characters become ?.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// count writes a number with blanks between groups of three digits.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return sign + s
}

// size writes a number of bytes with one digit behind the point.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 {
		return strconv.FormatInt(n, 10) + " B"
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + units[i]
}

// one gives the singular for 1.
func one(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return strconv.Itoa(n) + " " + plural
}
