"""Many machines: each examined, all compared, the bad ones named."""
