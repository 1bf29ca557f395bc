package prices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// scoreLife is how long a placement score is used again. Microsoft suggests to cache scores
// for each subscription, count, region, zone and size, for 15 to 30 minutes ("Spot
// Placement Score").
const scoreLife = 20 * time.Minute

// scoreCache is a file with placement scores and the times of their requests. It only saves
// requests: scores that cannot be read from it are asked for, and scores that cannot be
// written to it are asked for again next time.
type scoreCache struct {
	path string // empty for no cache
}

// cachedScores are the scores of one size in one region.
type cachedScores struct {
	Asked  time.Time        `json:"asked"`
	Scores []placementScore `json:"scores"`
}

// scoreKey names the scores of a size in a region.
func scoreKey(q Query, size, region string) string {
	return strings.ToLower(fmt.Sprintf("%s %d %t %s %s", q.Subscription, q.Count, q.Zones, size, region))
}

// read returns the scores that are still fresh at now.
func (c scoreCache) read(now time.Time) map[string]cachedScores {
	all := map[string]cachedScores{}
	if c.path == "" {
		return all
	}
	text, err := os.ReadFile(c.path)
	if err != nil || json.Unmarshal(text, &all) != nil || all == nil {
		return map[string]cachedScores{}
	}
	for key, one := range all {
		if age := now.Sub(one.Asked); age < 0 || age >= scoreLife {
			delete(all, key)
		}
	}
	return all
}

// add adds scores to the file, and drops old ones from it.
func (c scoreCache) add(scores map[string]cachedScores, now time.Time) {
	if c.path == "" || len(scores) == 0 {
		return
	}
	all := c.read(now)
	maps.Copy(all, scores)
	_ = c.write(all) // see scoreCache
}

// write replaces the file at once: another process reads the old one or the new one.
func (c scoreCache) write(all map[string]cachedScores) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	dir := filepath.Dir(c.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".scores-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), c.path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// askPlacement collects the scores of a batch: from the cache if it has all of them.
func (g *gathering) askPlacement(ctx context.Context, sizes, regions []string) {
	if scores, asked, ok := g.cachedPlacement(sizes, regions); ok {
		g.addScores(scores, asked)
		return
	}
	scores, err := g.client.placement(ctx, g.query, sizes, regions)
	g.addScores(scores, g.now)
	if err != nil {
		g.gap("placement scores", "placement scores of "+names(sizes)+" in "+names(regions), explain(err, placementRole))
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range scores {
		key := scoreKey(g.query, s.SKU, s.Region)
		g.newScores[key] = cachedScores{g.now, append(g.newScores[key].Scores, s)}
	}
}

// addScores adds scores to the answers. The report tells the age of the oldest.
func (g *gathering) addScores(scores []placementScore, asked time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.scores = append(g.scores, scores...)
	g.scoreAge = max(g.scoreAge, g.now.Sub(asked))
}

// cachedPlacement returns the cached scores of a batch, and the time of the oldest. ok is
// false if any size has none in any region.
func (g *gathering) cachedPlacement(sizes, regions []string) (scores []placementScore, asked time.Time, ok bool) {
	asked = g.now
	for _, size := range sizes {
		for _, region := range regions {
			one, found := g.oldScores[scoreKey(g.query, size, region)]
			if !found {
				return nil, asked, false
			}
			scores = append(scores, one.Scores...)
			if one.Asked.Before(asked) {
				asked = one.Asked
			}
		}
	}
	return scores, asked, true
}
