package screen

import (
	"context"
	"sync"
	"time"
)

// Shower shows scenes. [Display] is one.
type Shower interface {
	// Show replaces the picture.
	Show(Scene)

	// End removes the picture: other lines follow.
	End()
}

// pictureEvery is the time between two pictures.
const pictureEvery = 100 * time.Millisecond

// Animate shows the present scene again and again until stop is called or ctx ends. stop
// returns when the display has ended. Without a display it does nothing.
func Animate(ctx context.Context, display Shower, scene func(now time.Time) Scene) (stop func()) {
	if display == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() {
		ticker := time.NewTicker(pictureEvery)
		defer ticker.Stop()
		for {
			display.Show(scene(time.Now()))
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		showing.Wait()
		display.End()
	}
}
