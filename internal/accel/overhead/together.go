package overhead

import (
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/cost"
)

// maxTogether bounds the programs that are predicted together.
const maxTogether = 64

// PredictTogether predicts several programs that begin at the same time and share one link, and
// the devices that their traces name alike. It returns one prediction for each program.
//
// The programs' calls are evaluated in the order of their predicted times, which differs between
// links: so each link is an evaluation of its own.
func PredictTogether(opens []Open, link Link, o Options) ([]Prediction, error) {
	if len(opens) == 0 || len(opens) > maxTogether {
		return nil, outboard.Errorf(outboard.Invalid, "predict", "%d programs together: want 1 to %d", len(opens), maxTogether)
	}
	var g group
	if err := g.open(opens, link, o); err != nil {
		return nil, err
	}
	defer g.e.Close()
	if err := g.run(); err != nil {
		return nil, err
	}
	out := make([]Prediction, len(opens))
	for i, p := range g.programs {
		walls, err := g.e.Times(p.end)
		if err != nil {
			return nil, err
		}
		local, err := localTime(opens[i], p.src, o)
		if err != nil {
			return nil, err
		}
		out[i] = combine([]Link{link}, walls, local)[0]
	}
	return out, nil
}

// group is several programs in one evaluation.
type group struct {
	e        *cost.Evaluator
	l        lanes
	programs []*member
}

type member struct {
	src   Source
	model *model
	end   cost.Point
	over  bool
}

func (g *group) open(opens []Open, link Link, o Options) error {
	var shared *links
	for _, open := range opens {
		src, err := open()
		if err != nil {
			return err
		}
		s, err := o.settings(src.Header(), []Link{link})
		if err != nil {
			return err
		}
		s.together = true
		if g.e == nil {
			g.l = makeLanes([]Link{link}, &s.Constants, s.spread(), o.Intervals)
			g.e = cost.New(g.l.count)
			if shared, err = newLinks(g.e, &g.l, s); err != nil {
				return err
			}
		}
		m, err := newModel(g.e, &g.l, s, shared, src.Header())
		if err != nil {
			return err
		}
		g.programs = append(g.programs, &member{src: src, model: m})
	}
	return nil
}

// run adds all records, each time the next one of the program that is furthest behind.
func (g *group) run() error {
	for {
		p, err := g.behind()
		if err != nil || p == nil {
			return err
		}
		more, err := p.model.step(p.src)
		if err != nil {
			return err
		}
		if !more {
			p.over = true
			if p.end, err = p.model.finish(p.src); err != nil {
				return err
			}
		}
	}
}

func (g *group) behind() (first *member, err error) {
	least := cost.Of(time.Duration(1<<63 - 1))
	for _, p := range g.programs {
		if p.over {
			continue
		}
		now, err := g.e.At(p.model.now(), int(exact))
		if err != nil {
			return nil, err
		}
		if now < least {
			first, least = p, now
		}
	}
	return first, nil
}
