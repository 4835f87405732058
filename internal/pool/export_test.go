package pool

// TicketCount is how many tickets the view knows.
func (p *Pool) TicketCount() int {
	p.view.mu.Lock()
	defer p.view.mu.Unlock()
	return len(p.view.queue)
}
