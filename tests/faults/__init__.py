"""What must hold whatever happens: processes killed, disks full, files damaged, models that misbehave."""
