package client

// EndRefusal ends the time in which streams are not tried.
func (c *Client) EndRefusal() { c.pool.refused.Store(1) }

// EndSuspicions ends the time in which connections get no streams.
func (c *Client) EndSuspicions() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	clear(c.pool.suspected)
}
