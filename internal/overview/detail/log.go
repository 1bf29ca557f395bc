package detail

import "github.com/spotworker/spotworker/client"

// LogEnd is the last line of a log that was shown. The zero value is before the first line.
type LogEnd struct {
	delivery, number int
	began            bool
}

// Pass records a line as shown. isNew is false if it was shown before; begins says that it
// is the first line of its delivery. Of lines left out it returns those that are new.
func (p *LogEnd) Pass(l client.LogLine) (line client.LogLine, begins, isNew bool) {
	end := l.Number + max(l.LeftOut, 1) - 1
	if p.began && (l.Delivery < p.delivery || l.Delivery == p.delivery && end <= p.number) {
		return l, false, false
	}
	if missing := p.number + 1 - l.Number; p.began && l.Delivery == p.delivery && missing > 0 && l.LeftOut > 0 {
		l.Number, l.LeftOut = l.Number+missing, l.LeftOut-missing
	}
	begins = !p.began || l.Delivery != p.delivery
	p.began, p.delivery, p.number = true, l.Delivery, end
	return l, begins, true
}

// NewLines returns the lines of an end of a log that come after the known lines.
func NewLines(known, end []client.LogLine) []client.LogLine {
	p := LogEnd{}
	for _, l := range known {
		p.Pass(l)
	}
	var more []client.LogLine
	for _, l := range end {
		if l, _, isNew := p.Pass(l); isNew {
			more = append(more, l)
		}
	}
	return more
}
