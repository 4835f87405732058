package function

// Warm creates an instance for the next call unless one is idle, so that the call needs no clone.
func (f *Function) Warm() error {
	if err := f.beginCall(); err != nil {
		return err
	}
	defer f.calls.Done()
	if !f.Cold() {
		return nil
	}
	s, err := f.version.clone()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Cloned++
	f.idle = append(f.idle, s)
	return nil
}

// Cold reports whether the next call would have to create its instance.
func (f *Function) Cold() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.idle) == 0
}
