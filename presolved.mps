NAME          MODEL   
ROWS
 N  OBJROW
COLUMNS
RHS
    RHS       OBJROW    31.         
ENDATA
